"""Everything that touches pyopencl: devices, programs, rollouts. No market logic of its own."""

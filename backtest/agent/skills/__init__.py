"""How skills are formed and judged around a frozen policy: gradients, choice, training on."""

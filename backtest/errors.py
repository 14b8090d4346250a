"""The errors a user meets: what is wrong, where (file, key, row), and what to do."""


class BacktestError(Exception):
    """Bad input or a broken environment; the command line prints it and exits with 2."""


class ConfigError(BacktestError):
    """A key of the configuration: names the file, the key and what is allowed."""


class DataError(BacktestError):
    """Bars or features: names the file, the row (or bar) and the cure."""


class DeviceError(BacktestError):
    """No OpenCL device fits; lists those found and the command that installs a CPU runtime."""


class KernelError(BacktestError):
    """A kernel does not build or its layout differs from the host's; carries the compiler log."""


class StoreError(BacktestError):
    """The lake or the DuckDB file: missing, locked, or of another schema."""

"""An executor without threads."""

from concurrent.futures import Executor, Future


class Inline(Executor):
    """Runs each call at once, on the caller's thread."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future

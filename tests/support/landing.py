"""`threading.Event` for the simulator's tasks."""

from concurrent.futures import Future


class Landing:
    """What tasks of an engine wait on."""

    def __init__(self, engine):
        self.engine, self.landed = engine, Future()

    def set(self):
        if not self.landed.done():
            self.landed.set_result(None)

    def wait(self, timeout=None):
        self.engine.wait([self.landed], timeout)
        return self.landed.done()

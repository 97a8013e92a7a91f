"""`threading.Event` for the simulator's tasks."""


class Landing:
    """What tasks of an engine wait on."""

    def __init__(self, engine):
        self.engine, self.is_set, self.waiting = engine, False, []

    def set(self):
        self.is_set = True
        for wake in self.waiting:
            wake()

    def wait(self, timeout=None):
        def is_done(wake):
            self.waiting.append(wake)
            return self.is_set

        self.engine.wait(is_done, timeout)
        return self.is_set

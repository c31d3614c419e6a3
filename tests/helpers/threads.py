"""Threads that start at one moment."""

import threading
from collections.abc import Callable


def together(work: Callable[[int], object], count: int) -> None:
    """Call ``work`` with 0 to count - 1, each in a thread of its own; the first error is raised here."""
    barrier, errors = threading.Barrier(count), []

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except Exception as exc:
            errors.append(exc)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]

"""Waits for threads without missing a signal. Python runs a signal's handler in the main thread, and a signal that comes
just before that begins to wait does not wake it: it looks up from time to time instead."""
import concurrent.futures

LOOKS_UP_S = 0.2


def as_completed(futures):
    """As concurrent.futures.as_completed(), of a collection that may grow meanwhile."""
    seen = set()
    while waited := set(futures) - seen:
        done, _ = concurrent.futures.wait(waited, LOOKS_UP_S, concurrent.futures.FIRST_COMPLETED)
        seen |= done
        yield from done

"""Whether the model hub can be reached: asked once, so that nobody waits for a library's retries."""

from __future__ import annotations


def why_unreachable() -> str | None:
    """Ask the hub for a sign of life; any answer counts, also an error.

    The request goes out as all others of huggingface_hub do: to ``HF_ENDPOINT``, through the user's proxies, and not
    at all with ``HF_HUB_OFFLINE``. It waits as long as that library waits for a file's header
    (``HF_HUB_ETAG_TIMEOUT``, ten seconds).

    Returns:
        The reason in words, or ``None`` if it can be reached. Where it cannot, what is in its cache still loads with
        ``local_files_only``.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except Exception as exc:  # whatever the HTTP library raises, which differs between versions
        reason = (str(exc) or type(exc).__name__).splitlines()[0].rstrip(".")
        return f"{constants.ENDPOINT} does not answer ({reason})"
    return None

"""``python -m groundscope``."""

from groundscope.cli.main import main

main()

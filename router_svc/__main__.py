"""`python -m router_svc` is the `octavo` command."""

from router_svc.cli import main

main(prog_name="octavo")

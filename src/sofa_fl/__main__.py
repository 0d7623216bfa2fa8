"""`python -m sofa_fl` is `sofa-fl`."""

from sofa_fl.cli.main import main

if __name__ == "__main__":
    main()

"""`python -m study`, in a checkout."""

from study.cli import main

if __name__ == "__main__":
    main()

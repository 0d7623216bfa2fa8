"""SOFA-FL: the round (`method`), what it keeps (`state`), and its parts."""

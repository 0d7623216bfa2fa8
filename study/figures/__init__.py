"""The figures of the results, drawn with matplotlib."""

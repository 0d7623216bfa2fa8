"""What is compared: settings, contenders, and the runs that follow from them."""

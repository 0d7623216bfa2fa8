"""The rules of SOFA-FL: small functions that can be replaced."""

"""SOFA-FL: self-organizing hierarchical federated learning."""

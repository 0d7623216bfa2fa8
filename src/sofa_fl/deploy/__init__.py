"""Deployments are a package of their own now; this tells apps that were written before."""

raise ImportError(
    "sofa_fl.deploy is now sofa_fl_flower: pip install sofa-fl-flower, and write sofa_fl_flower "
    "wherever the app imports sofa_fl.deploy"
)

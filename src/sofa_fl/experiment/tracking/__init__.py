"""TensorBoard, W&B and MLflow."""

"""The dashboards. What is shipped are the JSON files in ../grafana; `../generate` writes them."""

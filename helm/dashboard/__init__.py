"""The Grafana dashboard: `python -m helm.dashboard` writes the JSON that the chart installs."""

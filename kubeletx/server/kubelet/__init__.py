"""The kubelet's API: routes, streams, logs, debugging pages."""

"""Several router processes behind one HTTP and one gRPC port."""

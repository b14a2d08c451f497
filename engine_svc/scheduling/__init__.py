"""What runs next and where its tokens live: plain Python, free of torch, grpc and protos."""

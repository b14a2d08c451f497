"""The protoc plugin that turns a contract with octavo.http.v1 options into an HTTP adapter."""

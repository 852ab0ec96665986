// No validator: it is a service of another host, which would be told of this one.
SwaggerUIBundle({ url: "openapi.json", dom_id: "#page", validatorUrl: null });

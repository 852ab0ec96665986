from bench.load.plan import Load, LoadResult

RESULT = LoadResult(requests=20, errors=1, seconds=4.0, p50_ms=1.0, p90_ms=2.0, p99_ms=3.0, max_ms=4.0)


def test_a_post_says_its_length_in_bytes() -> None:
    load = Load("http://127.0.0.1:81/v1/embeddings?x=1", ["é"], headers={"Authorization": "Bearer k"})
    (request,) = load.requests()
    assert request == (
        b"POST /v1/embeddings?x=1 HTTP/1.1\r\nHost: 127.0.0.1:81\r\nAuthorization: Bearer k\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n\xc3\xa9"
    )


def test_without_bodies_it_is_a_get() -> None:
    assert Load("http://localhost").requests() == [b"GET / HTTP/1.1\r\nHost: localhost:80\r\n\r\n"]


def test_loads_and_results_travel_as_json() -> None:
    load = Load("http://h:1/p", ["a", "b"], connections=3, rate_per_s=2.5)
    assert Load.from_json(load.to_json()) == load
    assert LoadResult.from_json(RESULT.to_json()) == RESULT
    assert RESULT.rate_per_s == 5

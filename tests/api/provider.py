"""A small OpenID Connect provider on loopback, which can be told to misbehave."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "stepkeep", "CANARY-oidc-client-secret"


class Provider:
    """What it knows: its keys, the codes that it gave, and how the next token is to be wrong."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.codes: dict[str, dict[str, str]] = {}
        self.claims: dict[str, Any] = {}
        self.signs_with: Any = None
        self.algorithm = "RS256"
        self.issuer = ""
        self.signs_as_secret = False
        self.asked: list[str] = []
        self.left_out = ""
        """A field that its discovery document lacks."""

    def rotate(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "two"})

    def authorize(self, asked: dict[str, str]) -> str:
        """The address that the browser is sent back to."""
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or authorization != f"Basic {expected}" or form["redirect_uri"] != asked["redirect_uri"]:
            return None
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return None
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "42",
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            "preferred_username": "ann",
            **self.claims,
        }
        if self.signs_as_secret:
            return {"id_token": self._forged(claims)}
        key = self.signs_with or self.key
        header = {"alg": self.algorithm, "kid": self.key.kid}
        signed = jwt.encode(header, claims, key, algorithms=[self.algorithm])
        return {"access_token": "CANARY-access-token", "token_type": "Bearer", "id_token": signed}

    def _forged(self, claims: dict[str, Any]) -> str:
        """A token signed with the public key as a shared secret, for a client that confuses the two."""
        header = {"alg": "HS256", "kid": self.key.kid}
        parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (header, claims)]
        signed = hmac.new(self.key.as_pem(private=False), b".".join(parts), hashlib.sha256).digest()
        return b".".join((*parts, base64.urlsafe_b64encode(signed).rstrip(b"="))).decode()


class _Handler(BaseHTTPRequestHandler):
    provider: Provider

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.provider.asked.append(path)
        if path == "/.well-known/openid-configuration":
            at = self.provider.issuer
            told = {
                "issuer": at,
                "authorization_endpoint": f"{at}/authorize",
                "token_endpoint": f"{at}/token",
                "jwks_uri": f"{at}/keys",
            }
            self._say({name: value for name, value in told.items() if name != self.provider.left_out})
        elif path == "/keys":
            self._say({"keys": [self.provider.key.as_dict(private=False)]})
        else:
            self._say({}, 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        said = self.provider.token(form, self.headers.get("Authorization", ""))
        self._say({"error": "invalid_grant"} if said is None else said, 400 if said is None else 200)

    def _say(self, body: object, status: int = 200) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@contextmanager
def serving() -> Iterator[Provider]:
    provider = Provider()
    handler = type("Handler", (_Handler,), {"provider": provider})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        provider.issuer = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()

"""Every way to mix things up, run without the tests' type checks, so that the library's own refusals show.

python tests/cipher/misuse.py    prints {case: [error type, sentence]} as JSON
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from codedfl.cipher.mceliece.messages import Ciphertext
from codedfl.cipher.mceliece.parameters import Parameters
from codedfl.cipher.mceliece.private_key import PrivateKey, generate_keys
from codedfl.cipher.mceliece.public_key import PublicKey, encrypt
from codedfl.cipher.mceliece.supports import Support

SIZES = {"n": 24, "k": 12, "degree": 3, "t_tot": 4, "t": 2, "M": 2, "beta": 2}


def cases() -> dict[str, Callable[[], object]]:
    p = Parameters(**SIZES)
    keys, others = generate_keys(p, seed=b"a" * 32), generate_keys(p, seed=b"b" * 32)
    double = generate_keys(p, dtype="float64", seed=b"a" * 32)
    public: Any = keys.public
    private: Any = keys.private
    support = private.support(0)
    A, theta_T = np.ones((3, 12), np.float32), np.ones((2, 3), np.float32)
    C: Any = encrypt(public, A, support)
    encoded: Any = public.encode(A)
    reply: Any = theta_T @ C
    other = encrypt(others.public, A, others.private.support(0))
    return {
        "decrypt a key": lambda: private.decrypt(public),
        "decrypt an array": lambda: private.decrypt(A),
        "decrypt another key's ciphertext": lambda: private.decrypt(other),
        "decrypt with an unknown decoder": lambda: private.decrypt(C, "magic"),
        "decrypt words of another length": lambda: private.decrypt(Ciphertext(C.key, C.words[:, :20])),
        "encrypt with the private key": lambda: encrypt(private, A, support),
        "encrypt a ciphertext": lambda: encrypt(public, C, support),
        "encrypt with positions": lambda: encrypt(public, A, support.positions),
        "encrypt with another key's support": lambda: encrypt(public, A, others.private.support(0)),
        "encrypt with a support of another size": lambda: encrypt(public, A, Support(C.key, 0, np.arange(3))),
        "encrypt with a support off the code": lambda: encrypt(public, A, Support(C.key, 0, np.array([0, 24]))),
        "encrypt too few columns": lambda: encrypt(public, A[:, :7], support),
        "encrypt a vector": lambda: encrypt(public, A[0], support),
        "encrypt no rows": lambda: encrypt(public, A[:0], support),
        "encrypt another precision": lambda: encrypt(public, A.astype(np.float64), support),
        "encrypt whole numbers": lambda: encrypt(public, A.astype(np.int64), support),
        "encrypt a NaN": lambda: encrypt(public, np.full((3, 12), np.nan, np.float32), support),
        "encrypt with a short seed": lambda: encrypt(public, A, support, seed=b"1"),
        "add an error to an array": lambda: public.add_error(A, support),
        "add an error to a reply": lambda: public.add_error(reply, support),
        "add an error under another key": lambda: public.add_error(other, support),
        "add under different keys": lambda: C + other,
        "add another precision": lambda: Ciphertext(C.key, C.words.astype(np.float64)) + C,
        "add another shape": lambda: C + encrypt(public, A[:2], support),
        "add a reply to a ciphertext": lambda: C + reply,
        "add a ciphertext to a reply": lambda: reply + C,
        "add an array to a ciphertext": lambda: C + C.words,
        "add an array to encoded data": lambda: encoded + 1,
        "multiply by the wrong shape": lambda: np.ones((2, 4), np.float32) @ C,
        "multiply by a vector": lambda: np.ones(3, np.float32) @ C,
        "multiply by another precision": lambda: np.ones((2, 3)) @ C,
        "a ciphertext of whole numbers": lambda: Ciphertext(C.key, np.ones((2, 24), np.int64)),
        "a support with a position twice": lambda: Support(C.key, 0, np.array([1, 1])),
        "a support of rows of positions": lambda: Support(C.key, 0, np.array([[1, 2], [3, 4]])),
        "a support of no positions": lambda: Support(C.key, 0, np.array([], np.int64)),
        "a support below the code": lambda: Support(C.key, 0, np.array([-1, 2])),
        "a support that does not exist": lambda: private.support(2),
        "a public key of another size": lambda: PublicKey(p, np.ones((12, 20), np.float32)),
        "a private key of another code": lambda: PrivateKey(
            Parameters(**{**SIZES, "n": 25}), C.key, private.code, private.erasures, private.family
        ),
        "a private key with other supports": lambda: PrivateKey(
            p, C.key, private.code, private.erasures, private.family[:1]
        ),
        "a private key with other erasures": lambda: PrivateKey(
            p, C.key, private.code, private.erasures[:3], private.family
        ),
        "double precision under a single key": lambda: private.decrypt(
            encrypt(double.public, A.astype(np.float64), double.private.support(0))
        ),
        "keys of another precision": lambda: generate_keys(p, dtype="float16"),
        "keys for an unknown decoder": lambda: generate_keys(p, decoder="magic"),
        "erasures nobody restores": lambda: generate_keys(
            Parameters(n=24, k=12, degree=3, t_tot=12, t=2, M=2, beta=2), seed=b"c" * 32
        ),
        "hyperplanes that do not exist": lambda: generate_keys(Parameters(**SIZES | {"t": 3}, family="affine")),
        "k above n": lambda: Parameters(**SIZES | {"k": 24}),
        "degree above the checks": lambda: Parameters(**SIZES | {"degree": 13}),
        "t_tot above the checks": lambda: Parameters(**SIZES | {"t_tot": 13}),
        "t above t_tot": lambda: Parameters(**SIZES | {"t": 5}),
        "beta above t": lambda: Parameters(**SIZES | {"beta": 3}),
        "M of 0": lambda: Parameters(**SIZES | {"M": 0}),
        "n of 24.0": lambda: Parameters(**SIZES | {"n": 24.0}),
        "unknown weights": lambda: Parameters(**SIZES, weights="heavy"),
        "unknown construction": lambda: Parameters(**SIZES, construction="lego"),
        "unknown family": lambda: Parameters(**SIZES, family="royal"),
        "no noise": lambda: Parameters(**SIZES, noise=0.0),
    }


def main() -> None:
    found = {}
    for name, attempt in cases().items():
        try:
            attempt()
        except Exception as error:
            found[name] = [type(error).__name__, str(error)]
        else:
            found[name] = ["", "nothing was raised"]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

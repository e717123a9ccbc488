"""Interleaved McEliece over real MDPC codes: the cipher of the paper (sections IV-A and V). It is broken.

An error matrix has rank beta = 4. With N a basis of the null space of the public G, the product C N^T = E N^T has rank
4, and its left kernel gives all but 4 combinations of the rows of A exactly, from one ciphertext and the public key
alone; symmetry of A leaves 10 unknown numbers. The paper *claims* 92 and 128 bits. The package reproduces the paper;
data that must stay private does not belong under it.

>>> import numpy as np
>>> from codedfl.cipher.mceliece.parameters import Parameters
>>> from codedfl.cipher.mceliece.private_key import generate_keys
>>> from codedfl.cipher.mceliece.public_key import encrypt
>>> keys = generate_keys(Parameters(n=24, k=12, degree=3, t_tot=4, t=2, M=2, beta=2))  # server
>>> A, theta_T = np.eye(12, dtype=np.float32), np.ones((1, 12), np.float32)
>>> C = encrypt(keys.public, A, keys.private.support(0))  # device: A G + E
>>> reply = theta_T @ C  # another device, on encrypted data
>>> bool(np.allclose(keys.private.decrypt(reply), theta_T @ A, atol=1e-3))  # server
True
"""

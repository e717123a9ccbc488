"""Interleaved McEliece over real MDPC codes: the cipher of the paper (sections IV-A and V). And one that holds.

**The paper's cipher is broken.** An error matrix has rank beta = 4, so with N a basis of the null space of the
public G, the product C N^T = E N^T has rank 4, and its left kernel gives all but 4 combinations of the rows
of A exactly, from one ciphertext and the public key alone; symmetry of A leaves 10 unknown numbers. The
paper *claims* 92 and 128 bits. The package exists to reproduce the paper and to be attacked; data that must
stay private does not belong under it.

    keys = generate_keys(PAPER_92)                     # server
    support = keys.private.support(0)                  # server -> one device, over a secure channel
    C = encrypt(keys.public, A, support)               # device: A G + E
    reply = theta_T @ C                                # another device, on encrypted data
    keys.private.decrypt(reply)                        # server: theta_T @ A

What holds is sealed sharing: fixed-point residues under one-time pads from AES-256.

    numbers = FixedPoint.choose(Z_32, entry_bound=2.4, summands=25, dimension=2000, model_steps=16)
    seed, ledger = Seed(), PadLedger()                 # device and server share the seed over a secure channel
    pad = Pad(Z_32, seed, Domain(device=7, export=0))
    C = seal(numbers.encode_symmetric(A), pad, ledger)             # device: upper triangle, 64 Mbit
    model = numbers.encode_model(theta)                            # server
    reply = Z_32.product(model.residues, unpack_upper(C))          # another device, on sealed data
    mask = symmetric_pad_product(model.residues, [pad])            # server, from the seed
    numbers.decode_product(Z_32.subtract(reply, mask), model)      # theta_T @ A, both rounded
"""

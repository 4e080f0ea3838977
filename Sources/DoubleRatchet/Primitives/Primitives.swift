/// Every cryptographic primitive of this library. Only the files in this folder use the cryptographic libraries.
///
/// There are two variants. With the package trait `CLibraries`, which is on by default, each primitive comes from the
/// library that measured best; without it, all come from swift-crypto. Only the folder `CLibraries` uses libcrypto and
/// libsodium. Both variants make the same bytes and pass the same tests.
///
/// | primitive | with `CLibraries` | without |
/// |---|---|---|
/// | SHA-2, HMAC | libcrypto: state in our memory, SHA instructions | `SHA256`, `SHA512`, `HMAC` |
/// | HKDF | this folder, over HMAC | the same |
/// | AES-256 | libcrypto: AES instructions, no allocation | `AES.permute` of `CryptoExtras` |
/// | AES-256-GCM-SIV | `LibcryptoSIV.swift`, over libcrypto's AES and GHASH | `AES.GCM._SIV` of `CryptoExtras` |
/// | AES-256-CBC | libcrypto | `AES._CBC` of `CryptoExtras` |
/// | Ed25519 verification | libsodium: three quarters of the others' time | `Curve25519.Signing`, and our own checks |
/// | X25519, Ed25519 signing, ML-KEM, AES-GCM | swift-crypto | the same |
///
/// No library has the encapsulation of ML-KEM-768 in two parts, which the braid needs: ``IncrementalKEM`` with
/// ``Keccak`` and ``Polynomial`` is our own in both variants. So are the maps between the two forms of Curve25519, which
/// identities and XEdDSA need (``FieldElement``).
///
/// Limits of their interfaces: ML-KEM encapsulation takes its 32 random bytes from the operating system and not from a
/// ``RandomSource``; expanded ML-KEM private keys pass through heap memory that is freed without being wiped. X25519
/// accepts low-order points there, so both the keys and every result are checked here.
package enum Primitives {}

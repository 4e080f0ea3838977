/// Every cryptographic primitive of this library. Only the files in this folder use the cryptographic libraries, and
/// each primitive comes from the one that measured best:
///
/// | primitive | from | why |
/// |---|---|---|
/// | SHA-2, HMAC, HKDF, AES | OpenSSL's libcrypto | state in our memory, SHA and AES instructions |
/// | Ed25519 verification | libsodium | three quarters of the others' time |
/// | X25519, Ed25519 signing, ML-KEM-1024 | swift-crypto | three quarters of the others' time; the only one with ML-KEM |
///
/// Limits of their interfaces: ML-KEM encapsulation takes its 32 random bytes from the operating system and not from a
/// ``RandomSource``; expanded ML-KEM private keys pass through heap memory that is freed without being wiped. X25519
/// accepts low-order points there, so both the keys and every result are checked here.
package enum Primitives {}

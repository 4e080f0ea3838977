/// The source of this library's randomness: always an argument, never a global.
///
/// Every function that needs random bytes takes an `inout some RandomSource`, so a test can replay a conversation from
/// a seed. There is one exception that the caller cannot replace: ML-KEM encapsulation in
/// ``Session/initiate(identity:with:expecting:random:)``, whose 32 random bytes swift-crypto takes from the operating
/// system.
public protocol RandomSource {
    /// Overwrites all of `bytes` with output of a cryptographically secure generator.
    mutating func fill(_ bytes: UnsafeMutableRawBufferPointer)
}

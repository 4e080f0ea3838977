#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// Secret bytes on the heap, not changed while anybody else holds them, wiped when the last reference goes.
///
/// An inline secret in a struct leaves copies behind whenever the struct moves, so this is the only type here that holds
/// secrets. Not changing it can be shared between a state and the candidate for its successor; whichever of the two is
/// dropped takes its own secrets with it. Its description shows the length and nothing else.
public final class SecretBytes: Sendable, CustomStringConvertible, CustomReflectable {
    /// Unsafe only to the compiler: nobody else has the pointer, and what many may hold is not written to, for ``replace(_:by:)``
    /// asks first whether it is held once.
    private nonisolated(unsafe) let buffer: UnsafeMutableRawBufferPointer

    /// The length in bytes.
    public var count: Int { buffer.count }

    /// `count` bytes that `fill` writes; they are zero when it is called.
    package init(count: Int, filledBy fill: (UnsafeMutableRawBufferPointer) -> Void) {
        buffer = .allocate(byteCount: count, alignment: 16)
        buffer.initializeMemory(as: UInt8.self, repeating: 0)
        fill(buffer)
    }

    /// A copy of `bytes`.
    package convenience init(copying bytes: UnsafeRawBufferPointer) {
        self.init(count: bytes.count) { $0.copyMemory(from: bytes) }
    }

    /// `count` fresh bytes from `random`.
    package convenience init(count: Int, random: inout some RandomSource) {
        self.init(count: count) { random.fill($0) }
    }

    deinit {
        Self.wipe(buffer)
        buffer.deallocate()
    }

    /// Lends the bytes to `body`, which must not keep the pointer.
    package func withUnsafeBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try body(UnsafeRawBufferPointer(buffer))
    }

    /// Appends the bytes to `output`, which the caller then has to wipe.
    package func append(to output: inout [UInt8]) {
        output.append(contentsOf: buffer)
    }

    /// Whether both hold the same bytes, in time that depends on the lengths only.
    func isEqual(to other: SecretBytes) -> Bool {
        Self.areEqual(UnsafeRawBufferPointer(buffer), UnsafeRawBufferPointer(other.buffer))
    }

    /// Whether two runs of bytes are the same, in time that depends on the lengths only.
    package static func areEqual(_ one: UnsafeRawBufferPointer, _ other: UnsafeRawBufferPointer) -> Bool {
        guard one.count == other.count else { return false }
        var difference: UInt8 = 0
        for index in one.indices { difference |= one[index] ^ other[index] }
        return difference == 0
    }

    /// Puts `bytes` in place of `secret`: into its memory where nobody else holds it and the length is the same.
    static func replace(_ secret: inout SecretBytes, by bytes: UnsafeRawBufferPointer) {
        if secret.count == bytes.count, isKnownUniquelyReferenced(&secret) {
            secret.buffer.copyMemory(from: bytes)
        } else {
            secret = SecretBytes(copying: bytes)
        }
    }

    /// Whether all bytes are zero, in time that depends on the length only.
    var isZero: Bool {
        var bits: UInt8 = 0
        for byte in buffer { bits |= byte }
        return bits == 0
    }

    /// Overwrites `bytes` with zeros in a way that the optimizer may not remove.
    package static func wipe(_ bytes: UnsafeMutableRawBufferPointer) {
        guard let base = bytes.baseAddress, bytes.count > 0 else { return }
        #if canImport(Darwin)
            memset_s(base, bytes.count, 0, bytes.count)
        #else
            explicit_bzero(base, bytes.count)
        #endif
    }

    /// Overwrites an array that held secrets, such as a serialized state, with zeros and empties it.
    public static func wipe(_ bytes: inout [UInt8]) {
        bytes.withUnsafeMutableBytes { wipe($0) }
        bytes.removeAll(keepingCapacity: false)
    }

    /// The length only.
    public var description: String { "SecretBytes(\(count) bytes)" }

    /// A mirror without children: `dump` and debuggers of ours show nothing either.
    public var customMirror: Mirror { Mirror(self, children: EmptyCollection<Mirror.Child>()) }
}

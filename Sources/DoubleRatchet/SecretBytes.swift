#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// Secret bytes on the heap, immutable while shared, wiped when the last reference is released.
///
/// An inline secret in a struct leaves copies behind whenever the struct moves, so this is the only type here that
/// holds secrets. Because shared bytes do not change, a state and the candidate for its successor can share them;
/// whichever of the two is dropped wipes only its own secrets. The description shows the length only.
public final class SecretBytes: Sendable, CustomStringConvertible, CustomReflectable {
    /// Unsafe only for the compiler: the pointer is private, and shared bytes are never written, because
    /// ``replace(_:by:)`` checks for a unique reference first.
    private nonisolated(unsafe) let buffer: UnsafeMutableRawBufferPointer

    /// The length in bytes.
    public var count: Int { buffer.count }

    /// Makes `count` bytes that `fill` writes; they are zero when it is called.
    package init(count: Int, filledBy fill: (UnsafeMutableRawBufferPointer) -> Void) {
        buffer = .allocate(byteCount: count, alignment: 16)
        buffer.initializeMemory(as: UInt8.self, repeating: 0)
        fill(buffer)
    }

    /// Copies `bytes`.
    package convenience init(copying bytes: UnsafeRawBufferPointer) {
        self.init(count: bytes.count) { $0.copyMemory(from: bytes) }
    }

    /// Makes `count` fresh bytes from `random`.
    package convenience init(count: Int, random: inout some RandomSource) {
        self.init(count: count) { random.fill($0) }
    }

    deinit {
        Self.wipe(buffer)
        buffer.deallocate()
    }

    /// Calls `body` with the bytes; `body` must not keep the pointer.
    package func withUnsafeBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try body(UnsafeRawBufferPointer(buffer))
    }

    /// Appends the bytes to `output`, which the caller then has to wipe.
    package func append(to output: inout [UInt8]) {
        output.append(contentsOf: buffer)
    }

    /// Whether both have the same bytes, in time that depends on the lengths only.
    func isEqual(to other: SecretBytes) -> Bool {
        Self.areEqual(UnsafeRawBufferPointer(buffer), UnsafeRawBufferPointer(other.buffer))
    }

    /// Whether two buffers have the same bytes, in time that depends on the lengths only.
    package static func areEqual(_ one: UnsafeRawBufferPointer, _ other: UnsafeRawBufferPointer) -> Bool {
        guard one.count == other.count else { return false }
        var difference: UInt8 = 0
        for index in one.indices { difference |= one[index] ^ other[index] }
        return difference == 0
    }

    /// Replaces `secret` by `bytes`: in its own memory if the reference is unique and the length is the same.
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

    /// Overwrites `bytes` with zeros in a way that the optimiser may not remove.
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

    /// A mirror without children, so that `dump` and debuggers show no bytes either.
    public var customMirror: Mirror { Mirror(self, children: EmptyCollection<Mirror.Child>()) }
}

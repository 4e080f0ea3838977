// Memory for keys: on the heap, in one place, wiped when nobody needs it any more.

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#else
    import Darwin
#endif

/// Bytes that are wiped when they are released and that never print. Never changed after they were filled, so copies of
/// a state may share them.
final class SecretBytes: @unchecked Sendable, CustomStringConvertible, CustomReflectable {
    // Sendable although it holds a pointer: the memory is written in `init` and read afterwards.
    private let memory: UnsafeMutableRawPointer
    let count: Int

    /// Copies bytes into memory of its own. The caller's copy is the caller's to wipe.
    init(_ bytes: some Collection<UInt8>) {
        count = bytes.count
        memory = UnsafeMutableRawPointer.allocate(byteCount: max(count, 1), alignment: 16)
        for (offset, byte) in bytes.enumerated() { memory.storeBytes(of: byte, toByteOffset: offset, as: UInt8.self) }
    }

    /// Fills memory of its own.
    init(count: Int, filling body: (UnsafeMutableRawBufferPointer) -> Void) {
        self.count = count
        memory = UnsafeMutableRawPointer.allocate(byteCount: max(count, 1), alignment: 16)
        body(UnsafeMutableRawBufferPointer(start: memory, count: count))
    }

    deinit {
        Self.wipe(UnsafeMutableRawBufferPointer(start: memory, count: count))
        memory.deallocate()
    }

    func withUnsafeBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try body(UnsafeRawBufferPointer(start: memory, count: count))
    }

    /// Overwrites memory in a way that no optimiser removes.
    static func wipe(_ memory: UnsafeMutableRawBufferPointer) {
        guard let base = memory.baseAddress, memory.count > 0 else { return }
        #if canImport(Glibc) || canImport(Musl)
            explicit_bzero(base, memory.count)
        #else
            memset_s(base, memory.count, 0, memory.count)
        #endif
    }

    /// Whether all bytes are zero, in time that does not depend on them.
    var isZero: Bool { withUnsafeBytes { $0.reduce(0) { $0 | $1 } == 0 } }

    var description: String { "SecretBytes(\(count))" }
    var customMirror: Mirror { Mirror(self, children: []) }
}

extension [UInt8] {
    /// Overwrites the bytes and empties the array; for copies of secrets that an interface forces.
    mutating func wipe() {
        withUnsafeMutableBytes { SecretBytes.wipe($0) }
        removeAll()
    }
}

import Glibc
import NIOCore

/// Splits what a connection reads into lines; copies only what is left of an unfinished one.
struct LineReader {
    private var pending = ByteBuffer()

    /// Calls `body` with each complete line in turn, without its line end.
    mutating func read(_ incoming: ByteBuffer, _ body: (UnsafeRawBufferPointer) -> Void) {
        if self.pending.readableBytes == 0 {
            self.pending = incoming
        } else {
            self.pending.writeImmutableBuffer(incoming)
        }
        let used = self.pending.withUnsafeReadableBytes { Self.split($0, body) }
        self.pending.moveReaderIndex(forwardBy: used)
        if self.pending.readableBytes == 0 {
            self.pending = ByteBuffer()
        }
    }

    private static func split(_ bytes: UnsafeRawBufferPointer, _ body: (UnsafeRawBufferPointer) -> Void) -> Int {
        guard let base = bytes.baseAddress else { return 0 }
        var start = 0
        while let found = memchr(base + start, 0x0A, bytes.count - start) {
            let newline = UnsafeRawPointer(found) - base
            let end = newline > start && bytes[newline - 1] == 0x0D ? newline - 1 : newline
            body(UnsafeRawBufferPointer(rebasing: bytes[start..<end]))
            start = newline + 1
        }
        return start
    }
}

/// A line's words, taken one after another.
struct Words {
    private var rest: UnsafeRawBufferPointer

    init(_ line: UnsafeRawBufferPointer) {
        self.rest = line
    }

    /// The next byte, not taken.
    var first: UInt8? { self.rest.first }

    /// The next word without the spaces around it; after a colon all that is left.
    mutating func next() -> UnsafeRawBufferPointer? {
        self.skipSpaces()
        guard let first = self.rest.first, let base = self.rest.baseAddress else { return nil }
        if first == UInt8(ascii: ":") {
            defer { self.rest = UnsafeRawBufferPointer(start: nil, count: 0) }
            return UnsafeRawBufferPointer(rebasing: self.rest.dropFirst())
        }
        let end = memchr(base, 0x20, self.rest.count).map { UnsafeRawPointer($0) - base } ?? self.rest.count
        defer { self.rest = UnsafeRawBufferPointer(rebasing: self.rest[end...]) }
        return UnsafeRawBufferPointer(rebasing: self.rest[..<end])
    }

    /// The next word if it begins with `mark`, without the mark: tags or a prefix.
    mutating func next(markedBy mark: UInt8) -> UnsafeRawBufferPointer? {
        self.skipSpaces()
        guard self.rest.first == mark else { return nil }
        self.rest = UnsafeRawBufferPointer(rebasing: self.rest.dropFirst())
        let end = self.rest.firstIndex(of: 0x20) ?? self.rest.count
        defer { self.rest = UnsafeRawBufferPointer(rebasing: self.rest[end...]) }
        return UnsafeRawBufferPointer(rebasing: self.rest[..<end])
    }

    private mutating func skipSpaces() {
        while self.rest.first == 0x20 {
            self.rest = UnsafeRawBufferPointer(rebasing: self.rest.dropFirst())
        }
    }
}

extension UnsafeRawBufferPointer {
    /// Whether the bytes are exactly this text.
    func equals(_ text: StaticString) -> Bool {
        guard self.count == text.utf8CodeUnitCount, let base = self.baseAddress else { return self.isEmpty }
        return memcmp(base, text.utf8Start, self.count) == 0
    }

    /// The bytes as a string; up to 15 bytes cost no allocation.
    var string: String { String(decoding: self, as: UTF8.self) }

    /// The bytes in lower case, as the key that `CASEMAPPING=ascii` asks for.
    var foldedString: String {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: self.count) { folded in
            for (index, byte) in self.enumerated() {
                folded[index] = (0x41...0x5A).contains(byte) ? byte | 0x20 : byte
            }
            return String(decoding: folded, as: UTF8.self)
        }
    }
}

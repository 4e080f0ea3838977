/// Bytes read as instructions, for a fuzzer that grows them or a test that draws them. What is past the end is zero.
struct Programme {
    private let bytes: [UInt8]
    private var position = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    var isAtEnd: Bool { position >= bytes.count }

    mutating func byte() -> Int {
        guard position < bytes.count else { return 0 }
        defer { position += 1 }
        return Int(bytes[position])
    }

    mutating func number() -> Int { byte() << 8 | byte() }

    /// What is left, at most `count` bytes.
    mutating func take(_ count: Int = .max) -> [UInt8] {
        let end = min(bytes.count, position + min(count, bytes.count))
        defer { position = max(position, end) }
        return position < end ? Array(bytes[position..<end]) : []
    }
}

/// Something that must not happen has: what a programme ends with, and a fuzzer keeps.
struct Finding: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}

func demand(_ holds: Bool, _ text: @autoclosure () -> String) throws(Finding) {
    guard holds else { throw Finding(text()) }
}

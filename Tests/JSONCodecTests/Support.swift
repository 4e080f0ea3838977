import NIOCore

@testable import JSONCodec

func document(_ text: String, limits: JSONLimits = .standard) throws(JSONError) -> JSONDocument {
    try document(Array(text.utf8), limits: limits)
}

func document(_ bytes: [UInt8], limits: JSONLimits = .standard) throws(JSONError) -> JSONDocument {
    // bytes in front of the document, so that an offset into the buffer is not taken for one into the document
    var buffer = ByteBuffer(bytes: [0x7B, 0x22, 0x5B])
    buffer.writeBytes(bytes)
    buffer.moveReaderIndex(forwardBy: 3)
    return try JSONDocument(buffer, limits: limits)
}

/// Why a document is refused; nothing where it is taken.
func refusal(_ bytes: [UInt8], limits: JSONLimits = .standard) -> JSONError? {
    do throws(JSONError) {
        _ = try document(bytes, limits: limits)
        return nil
    } catch {
        return error
    }
}

func refusal(_ text: String, limits: JSONLimits = .standard) -> JSONError? {
    refusal(Array(text.utf8), limits: limits)
}

extension ByteBuffer {
    var text: String { String(buffer: self) }
}

extension JSONDocument {
    func written(_ place: JSONPlace) -> String { slice(place).text }

    /// Its value in the words of Peers/judge.py.
    var dump: String { withTable { $0.dump(root) } }
}

extension JSONTable {
    func dump(_ place: JSONPlace) -> String {
        let entry = entry(place)
        return switch entry.kind {
        case .object:
            "{"
                + children(of: place).map { dump(entries[Int($0.index) - 1]) + ":" + dump($0) }
                .joined(separator: ",") + "}"
        case .array: "[" + children(of: place).map(dump).joined(separator: ",") + "]"
        case .string, .name: dump(entry)
        case .number: "n" + String(decoding: bytes[entry.range], as: UTF8.self)
        case .true: "t"
        case .false: "f"
        case .null: "z"
        }
    }

    private func dump(_ string: JSONEntry) -> String {
        "s" + text(string).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}

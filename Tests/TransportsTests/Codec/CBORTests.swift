import Foundation
import TestKit
import Testing
import TransportCodec

@Suite struct CBORTests {
    /// Examples of RFC 8949, appendix A.
    private static let examples: [(CBORValue, [UInt8])] = [
        (.integer(0), [0x00]), (.integer(23), [0x17]), (.integer(24), [0x18, 0x18]), (.integer(100), [0x18, 0x64]),
        (.integer(1000), [0x19, 0x03, 0xE8]), (.integer(1_000_000), [0x1A, 0x00, 0x0F, 0x42, 0x40]),
        (.integer(1_000_000_000_000), [0x1B, 0, 0, 0, 0xE8, 0xD4, 0xA5, 0x10, 0]), (.integer(-1), [0x20]),
        (.integer(.max), [0x1B, 0x7F] + [UInt8](repeating: 0xFF, count: 7)),
        (.unsigned(1 << 63), [0x1B, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        (.unsigned(.max), [0x1B] + [UInt8](repeating: 0xFF, count: 8)),
        (.integer(-1000), [0x39, 0x03, 0xE7]), (.integer(.min), [0x3B, 0x7F] + [UInt8](repeating: 0xFF, count: 7)),
        (.double(1.1), [0xFB, 0x3F, 0xF1, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9A]), (.bool(false), [0xF4]),
        (.bool(true), [0xF5]), (.null, [0xF6]), (.text(""), [0x60]), (.text("IETF"), [0x64, 0x49, 0x45, 0x54, 0x46]),
        (.text("\u{6C34}"), [0x63, 0xE6, 0xB0, 0xB4]), (.array([]), [0x80]),
        (.array([.integer(1), .array([.integer(2)])]), [0x82, 0x01, 0x81, 0x02]), (.map([]), [0xA0]),
        (.map([("a", .integer(1)), ("b", .null)]), [0xA2, 0x61, 0x61, 0x01, 0x61, 0x62, 0xF6]),
    ]

    @Test func theExamplesOfTheSpecification() throws {
        for (value, bytes) in Self.examples {
            #expect(value.bytes == bytes)
            #expect(try CBORValue(bytes) == value)
        }
    }

    @Test func truncatedAndLongerBytesAreRefused() {
        for (_, bytes) in Self.examples {
            for count in 0..<bytes.count {
                #expect(throws: CBORError.truncated) { try CBORValue(Array(bytes.prefix(count))) }
            }
            #expect(throws: CBORError.trailing) { try CBORValue(bytes + [0]) }
        }
    }

    @Test(arguments: [
        // Byte string, tag, undefined simple value, indefinite text and array, number as key, -2^63 - 1.
        ([0x41, 0] as [UInt8], CBORError.unsupported), ([0xC0, 0x60], .unsupported), ([0xF0], .unsupported),
        ([0x7F, 0xFF], .unsupported), ([0x9F, 0xFF], .unsupported), ([0xA1, 0x01, 0x01], .unsupported),
        ([0x3B, 0x80, 0, 0, 0, 0, 0, 0, 0], .unsupported), ([0x61, 0xFF], .notText),
        ([0xA2, 0x61, 0x61, 0, 0x61, 0x61, 0], .repeatedKey),
        // Counts that promise more than is there.
        ([0x9B, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], .truncated),
        ([0x7A, 0xFF, 0xFF, 0xFF, 0xFF], .truncated),
    ])
    func whatIsNotAcceptedIsRefused(_ bytes: [UInt8], _ error: CBORError) {
        #expect(throws: error) { try CBORValue(bytes) }
    }

    @Test func levelsAreBounded() throws {
        let limit = CBORValue.depthLimit
        _ = try CBORValue([UInt8](repeating: 0x81, count: limit - 1) + [0])
        #expect(throws: CBORError.tooDeep) { try CBORValue([UInt8](repeating: 0x81, count: limit) + [0]) }
        #expect(throws: CBORError.tooDeep) { try CBORValue([UInt8](repeating: 0x81, count: 1_000_000)) }
    }

    private static func random(_ generator: inout SeededGenerator, _ depth: Int) -> CBORValue {
        switch generator.below(depth > 3 ? 6 : 8) {
        case 0: .null
        case 1: .bool(generator.below(2) == 0)
        case 2: .integer(Int64(bitPattern: generator.next()))
        case 3: .unsigned(generator.next() | 1 << 63)
        case 4: .double(Double(generator.below(1000)) + 0.5)
        case 5: .text(String(decoding: generator.bytes(generator.below(30)).map { $0 & 0x7F }, as: UTF8.self))
        case 6: .array((0..<generator.below(4)).map { _ in random(&generator, depth + 1) })
        default: .map((0..<generator.below(4)).map { ("k\($0)", random(&generator, depth + 1)) })
        }
    }

    /// Through JSON and back: what the serializer does with every envelope.
    @Test func randomValuesComeBackThroughBothForms() throws {
        var generator = SeededGenerator(seed: 8949)
        for _ in 0..<500 {
            let value = Self.random(&generator, 0)
            #expect(try CBORValue(value.bytes) == value)
            let json = try JSONEncoder().encode(value)
            #expect(try JSONDecoder().decode(CBORValue.self, from: json) == value)
        }
    }

    @Test func randomBytesAreReadOrRefused() {
        var generator = SeededGenerator(seed: 49)
        for round in 0..<20_000 {
            var bytes = generator.bytes(1 + generator.below(40))
            if round.isMultiple(of: 2) {
                bytes = Self.random(&generator, 0).bytes
                bytes[generator.below(bytes.count)] = UInt8(generator.below(256))
            }
            if let value = try? CBORValue(bytes), let again = try? CBORValue(value.bytes) {
                // Not a number is unequal to itself, so the bytes are compared.
                #expect(again.bytes == value.bytes)
            }
        }
    }
}

import TestKit
import Testing

@testable import DoubleRatchet
@testable import OMEMO

@Suite("Protocol Buffers, as far as OMEMO uses them")
struct ProtobufTests {
    private func number(_ field: UInt64, _ bytes: [UInt8]) throws(RatchetError) -> UInt32? {
        try bytes.span.withUnsafeBytes { (bytes) throws(RatchetError) in
            try ProtobufMessage(bytes).optionalNumber(field)
        }
    }

    private func string(_ field: UInt64, _ bytes: [UInt8]) throws(RatchetError) -> [UInt8] {
        try bytes.span.withUnsafeBytes { (bytes) throws(RatchetError) in Array(try ProtobufMessage(bytes).bytes(field))
        }
    }

    @Test("fields in any order, unknown ones between them") func order() throws {
        // 2: "hi", 9: varint, 1: 150, 15: 8 bytes, 14: 4 bytes, 12: bytes
        let bytes =
            hex("12026869 4801 089601 79 0102030405060708 75 01020304 6203 aabbcc")
        #expect(try number(1, bytes) == 150)
        #expect(try string(2, bytes) == Array("hi".utf8))
        #expect(try number(3, bytes) == nil)
        #expect(throws: RatchetError.malformed) { try string(3, bytes) }
        #expect(try number(1, []) == nil)
    }

    @Test("numbers: other than the shortest form is allowed, more than 32 bits are not") func numbers() throws {
        #expect(try number(1, hex("08 80 80 00")) == 0)
        #expect(try number(1, hex("08 ff ff ff ff 0f")) == .max)
        #expect(throws: RatchetError.malformed) { try number(1, hex("08 80 80 80 80 10")) }
        #expect(throws: RatchetError.malformed) { try number(1, hex("08 ff ff ff ff ff ff ff ff ff 01")) }
        #expect(throws: RatchetError.malformed) { try number(1, hex("08 80 80 80 80 80 80 80 80 80 02")) }
        #expect(throws: RatchetError.malformed) { try number(1, hex("08 80 80 80 80 80 80 80 80 80 80 00")) }
    }

    @Test("the type has to be the expected one, and a known field comes once") func types() throws {
        #expect(throws: RatchetError.malformed) { try number(1, hex("0a 01 00")) }
        #expect(throws: RatchetError.malformed) { try number(1, hex("0d 01 02 03 04")) }
        #expect(throws: RatchetError.malformed) { try string(1, hex("08 01")) }
        #expect(throws: RatchetError.malformed) { try number(1, hex("08 01 08 01")) }
        #expect(throws: RatchetError.malformed) { try number(1, hex("08 01 32 00 32 00")) }
        #expect(try number(1, hex("08 01 38 01 38 01")) == 1)
    }

    @Test("groups, field 0 and what is cut off or endless are refused") func damage() throws {
        for text in [
            "0b", "0c", "0e", "0f", "00 01", "02 00", "08", "0a 02 00", "0a ff ff ff ff 0f", "09 01 02 03 04 05 06 07",
            "0d 01 02 03", "0a ff ff ff ff ff ff ff ff 7f", "0a ff ff ff ff ff ff ff ff ff 01", "88", "80 80 80 80 80",
            "ff ff ff ff ff ff ff ff ff ff 01", "88 80 80 80 80 01 00",
        ] {
            #expect(throws: RatchetError.malformed, "\(text)") { try number(6, hex(text)) }
        }
    }

    @Test("random bytes never trap") func random() {
        var random = SeededGenerator(seed: 302)
        var (whole, refused) = (0, 0)
        for _ in 0..<20_000 {
            do throws(RatchetError) {
                _ = try number(1, random.bytes(random.below(24)))
                whole += 1
            } catch {
                #expect(error == .malformed)
                refused += 1
            }
        }
        #expect(whole > 100 && refused > 100)
    }
}

import Testing

@testable import DoubleRatchet

/// The expected numbers were computed apart from this library, by a program that also gives Signal's published ones.
@Suite("Safety numbers")
struct SafetyNumberTests {
    private let one = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    private let two = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"

    private func party(_ name: String, _ key: String) throws -> SafetyNumber.Party {
        SafetyNumber.Party(identifier: Array(name.utf8), key: try identityKey(hex(key)))
    }

    private func scan(_ number: SafetyNumber, _ code: [UInt8]) -> SafetyNumber.ScanResult {
        number.matches(scanned: code.span)
    }

    @Test("known digits and code, in either order") func golden() throws {
        let (alice, bob) = (try party("alice", one), try party("bob", two))
        let number = SafetyNumber(alice, bob)
        #expect(number.digits == "241540562580284881203337890235335549457254116419466274889807")
        #expect(
            number.description
                == "24154 05625 80284 88120 33378 90235 33554 94572 54116 41946 62748 89807")
        #expect(
            text(number.scannable) == "010ee918459a0abb4c30f91e1d5442dc7fc02c7ed849477aa822d237e386dbfb60"
                + "627a80739259108d720c7a67c946642e630c3c9a0aea98e97c8899513aef397b")
        #expect(number.scannable.count == SafetyNumber.scannableByteCount)
        #expect(SafetyNumber(bob, alice) == number)
    }

    @Test("digits and fingerprints are each in their own order") func orders() throws {
        let number = SafetyNumber(try party("a0", one), try party("bob", two))
        #expect(number.digits == "241540562580284881203337890235" + "300797224833583108249274809245")
        #expect(
            text(number.scannable) == "010d09bfa79fdfb49505d8f957f3842f8814b752a8203afe390c9b6590a57d79a5"
                + "0ee918459a0abb4c30f91e1d5442dc7fc02c7ed849477aa822d237e386dbfb60")
    }

    @Test("another key, another identifier, or the two keys exchanged make another number") func different() throws {
        let number = SafetyNumber(try party("alice", one), try party("bob", two))
        let third = "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"
        for other in [
            SafetyNumber(try party("alice", third), try party("bob", two)),
            SafetyNumber(try party("alice", one), try party("bob", third)),
            SafetyNumber(try party("alicf", one), try party("bob", two)),
            SafetyNumber(try party("alice", one), try party("", two)),
            SafetyNumber(try party("alice", two), try party("bob", one)),
        ] {
            #expect(other.digits != number.digits)
            #expect(scan(number, other.scannable) == .mismatch)
            #expect(scan(other, number.scannable) == .mismatch)
        }
    }

    @Test("a code matches whole and in no other form") func scanning() throws {
        let number = SafetyNumber(try party("alice", one), try party("bob", two))
        let code = number.scannable
        #expect(scan(number, code) == .match)
        for index in code.indices {
            for bit in 0..<8 {
                var changed = code
                changed[index] ^= 1 << bit
                #expect(scan(number, changed) == (index == 0 ? .unsupportedVersion : .mismatch), "byte \(index)")
            }
            #expect(scan(number, Array(code[..<index])) == .malformed, "\(index) bytes")
        }
        #expect(scan(number, code + [0]) == .malformed)
        #expect(scan(number, [UInt8](repeating: 1, count: 1 << 20)) == .malformed)
        #expect(scan(number, [2] + code.dropFirst() + [0]) == .unsupportedVersion)
    }
}

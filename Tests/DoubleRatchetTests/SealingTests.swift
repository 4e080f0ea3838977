import Crypto
import CryptoExtras
import Foundation
import TestKit
import Testing

@testable import DoubleRatchet

@Suite("AES-256-GCM-SIV")
struct SealingTests {
    private func seal(_ key: [UInt8], _ nonce: [UInt8], _ text: [UInt8], _ data: [UInt8]) -> [UInt8] {
        var output: [UInt8] = []
        text.withUnsafeBytes {
            Primitives.seal($0, key: SecretBytes(key), nonce: nonce, authenticating: data, into: &output)
        }
        return output
    }

    /// Nil where it is refused; then the output has to be as before.
    private func open(_ key: [UInt8], _ nonce: [UInt8], _ sealed: [UInt8], _ data: [UInt8]) -> [UInt8]? {
        var output: [UInt8] = [7]
        do throws(RatchetError) {
            try sealed.span.withUnsafeBytes { (sealed) throws(RatchetError) in
                try Primitives.open(sealed, key: SecretBytes(key), nonce: nonce, authenticating: data, into: &output)
            }
            return Array(output.dropFirst())
        } catch {
            #expect(error == .authenticationFailed)
            #expect(output == [7])
            return nil
        }
    }

    @Test("RFC 8452, appendix C.2") func rfc() {
        let key = hex("01" + String(repeating: "00", count: 31))
        let nonce = hex("030000000000000000000000")
        #expect(text(seal(key, nonce, [], [])) == "07f5f4169bbf55a8400cd47ea6fd400f")
        #expect(
            text(seal(key, nonce, hex("0100000000000000"), []))
                == "c2ef328e5c71c83b843122130f7364b761e0b97427e3df28")
        #expect(
            text(seal(key, nonce, hex("02000000000000000000000000000000"), hex("01")))
                == "c91545823cc24f17dbb0e9e807d5ec17b292d28ff61189e8e49f3875ef91aff7")
    }

    @Test("RFC 8452, appendix C.3: the counter wraps") func counterWrap() {
        let sealed = seal(
            [UInt8](repeating: 0, count: 32), [UInt8](repeating: 0, count: 12),
            hex("00000000000000000000000000000000 4db923dc793ee6497c76dcc03a98e108"), [])
        #expect(
            text(sealed) == "f3f80f2cf0cb2dd9c5984fcda908456cc537703b5ba70324a6793a7bf218d3ea"
                + "ffffffff000000000000000000000000")
    }

    @Test("As swift-crypto seals, at all lengths around blocks and chunks") func anotherLibrary() throws {
        var random = SeededGenerator(seed: 8452)
        let lengths = Array(0...66) + [255, 256, 257, 1007, 1008, 1023, 1024, 1025, 2047, 2048, 2049, 5000]
        for length in lengths {
            for dataLength in [0, 1, 15, 16, 17, 64, 104, 1024, 1025, lengths.randomElement(using: &random)] {
                let (key, nonce) = (random.bytes(32), random.bytes(12))
                let (text, data) = (random.bytes(length), random.bytes(dataLength ?? 0))
                let box = try AES.GCM._SIV.seal(
                    text, using: SymmetricKey(data: key), nonce: AES.GCM._SIV.Nonce(data: nonce), authenticating: data)
                let sealed = seal(key, nonce, text, data)
                #expect(sealed == Array(box.ciphertext + box.tag), "\(length) and \(data.count) bytes")
                #expect(open(key, nonce, sealed, data) == text, "\(length) and \(data.count) bytes")
            }
        }
    }

    @Test("A bit changed anywhere, and every truncation, is refused") func forgeries() {
        var random = SeededGenerator(seed: 1)
        let (key, nonce, data) = (random.bytes(32), random.bytes(12), random.bytes(20))
        let sealed = seal(key, nonce, random.bytes(40), data)
        for bit in 0..<8 * sealed.count {
            var changed = sealed
            changed[bit / 8] ^= 1 << (bit % 8)
            #expect(open(key, nonce, changed, data) == nil, "bit \(bit)")
        }
        for bit in 0..<8 * data.count {
            var changed = data
            changed[bit / 8] ^= 1 << (bit % 8)
            #expect(open(key, nonce, sealed, changed) == nil, "bit \(bit) of the data")
        }
        for length in 0..<sealed.count { #expect(open(key, nonce, Array(sealed.prefix(length)), data) == nil) }
        #expect(open(key, nonce, sealed + [0], data) == nil)
        #expect(open(key, nonce, sealed, data + [0]) == nil, "padding is not data")
        #expect(open(key, nonce, sealed, data.dropLast()) == nil)
        #expect(open(random.bytes(32), nonce, sealed, data) == nil)
        #expect(open(key, random.bytes(12), sealed, data) == nil)
        #expect(open(key, nonce, sealed, data) != nil)
    }

    @Test("Contexts are not shared by threads") func threads() async {
        await withTaskGroup(of: Bool.self) { group in
            for seed in 0..<8 {
                group.addTask {
                    var random = SeededGenerator(seed: UInt64(seed))
                    for _ in 0..<200 {
                        let (key, nonce) = (random.bytes(32), random.bytes(12))
                        let (text, data) = (random.bytes(random.below(600)), random.bytes(random.below(200)))
                        guard open(key, nonce, seal(key, nonce, text, data), data) == text else { return false }
                    }
                    return true
                }
            }
            for await isRight in group { #expect(isRight) }
        }
    }

    // MARK: Wycheproof, from the checkout of swift-crypto

    @Test("Wycheproof AES-GCM-SIV with 256-bit keys") func wycheproof() throws {
        let data = try VectorFile.checkout("CryptoExtrasVectors/aes_gcm_siv_test.json").read()
        let file = try JSONSerialization.jsonObject(with: data) as? [String: Any]
        let groups = try #require(file?["testGroups"] as? [[String: Any]])
        var (opened, refused) = (0, 0)
        for group in groups where group["keySize"] as? Int == 256 && group["ivSize"] as? Int == 96 {
            for test in try #require(group["tests"] as? [[String: Any]]) {
                func bytes(_ name: String) -> [UInt8] { hex(test[name] as? String ?? "") }
                let sealed = bytes("ct") + bytes("tag")
                let result = open(bytes("key"), bytes("iv"), sealed, bytes("aad"))
                let id = test["tcId"] as? Int ?? 0
                if test["result"] as? String == "valid" {
                    #expect(result == bytes("msg"), "test \(id)")
                    #expect(seal(bytes("key"), bytes("iv"), bytes("msg"), bytes("aad")) == sealed, "test \(id)")
                    opened += 1
                } else {
                    #expect(result == nil, "test \(id)")
                    refused += 1
                }
            }
        }
        #expect(opened > 30 && refused > 20, "\(opened) opened, \(refused) refused")
    }
}

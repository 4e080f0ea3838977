import Foundation
import TestKit
import Testing

@testable import DoubleRatchet

@Suite("AES-256-CBC")
struct ChainedCipherTests {
    private func seal(_ key: [UInt8], _ iv: [UInt8], _ text: [UInt8]) -> [UInt8] {
        var output: [UInt8] = []
        text.withUnsafeBytes { text in
            key.withUnsafeBytes { key in
                iv.withUnsafeBytes { Primitives.sealCBC(text, key: key, iv: $0, into: &output) }
            }
        }
        return output
    }

    /// Nil where it is refused; then the output has to be as before.
    private func open(_ key: [UInt8], _ iv: [UInt8], _ sealed: [UInt8]) -> [UInt8]? {
        var output: [UInt8] = [7]
        do throws(RatchetError) {
            try sealed.span.withUnsafeBytes { (sealed) throws(RatchetError) in
                try key.span.withUnsafeBytes { (key) throws(RatchetError) in
                    try iv.span.withUnsafeBytes { (iv) throws(RatchetError) in
                        try Primitives.openCBC(sealed, key: key, iv: iv, into: &output)
                    }
                }
            }
            return Array(output.dropFirst())
        } catch {
            #expect(error == .malformed && output == [7])
            return nil
        }
    }

    @Test("NIST SP 800-38A, appendix F.2.5, with padding behind it") func nist() {
        let key = hex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
        let iv = hex("000102030405060708090a0b0c0d0e0f")
        let text = hex("6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51")
        let sealed = seal(key, iv, text)
        #expect(
            Array(sealed.prefix(32))
                == hex("f58c4c04d6e5f1ba779eabfb5f7bfbd6 9cfc4e967edb808d679f777bc6702c7d"))
        #expect(sealed.count == 48 && open(key, iv, sealed) == text)
        for count in 0..<48 { #expect(open(key, iv, Array(sealed.prefix(count))) != text) }
    }

    @Test("Every length comes back") func lengths() {
        var random = SeededGenerator(seed: 38)
        for count in 0...70 {
            let (key, iv, text) = (random.bytes(32), random.bytes(16), random.bytes(count))
            let sealed = seal(key, iv, text)
            #expect(sealed.count == (count / 16 + 1) * 16 && open(key, iv, sealed) == text)
        }
    }

    @Test("Wycheproof AES-CBC with 256-bit keys") func wycheproof() throws {
        var (opened, refused) = (0, 0)
        for test in try VectorFile.checkout("CryptoExtrasVectors/aes_cbc_pkcs5_test.json").wycheproof()
        where test["group key size"] as? Int == 256 {
            func bytes(_ name: String) -> [UInt8] { hex(test[name] as? String ?? "") }
            let result = open(bytes("key"), bytes("iv"), bytes("ct"))
            let id = test["tcId"] as? Int ?? 0
            if test["result"] as? String == "valid" {
                #expect(result == bytes("msg"), "test \(id)")
                #expect(seal(bytes("key"), bytes("iv"), bytes("msg")) == bytes("ct"), "test \(id)")
                opened += 1
            } else {
                #expect(result == nil, "test \(id)")
                refused += 1
            }
        }
        #expect(opened > 20 && refused > 20, "\(opened) opened, \(refused) refused")
    }
}

import Testing

@testable import DoubleRatchet

@Suite("AES-256 of one block")
struct BlockTests {
    @Test("FIPS 197, appendix C.3: one block of AES-256") func block() {
        var block = hex("00112233445566778899aabbccddeeff")
        let key = SecretBytes(Array(0...31))
        CipherContext.withOne { context in
            key.withUnsafeBytes { context.setKey($0) }
            block.withUnsafeMutableBytes { context.encrypt($0) }
        }
        #expect(text(block) == "8ea2b7ca516745bfeafc49904b496089")
    }
}

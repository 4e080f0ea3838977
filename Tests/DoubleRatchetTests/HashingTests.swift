import Testing

@testable import DoubleRatchet

@Suite("SHA-2, HMAC and HKDF")
struct HashingTests {
    private func code(_ key: [UInt8], _ message: [UInt8]) -> String {
        text(message.withUnsafeBytes { Primitives.hmac(key: SecretBytes(key), $0) }.array)
    }

    @Test("FIPS 180-4: SHA-256 of nothing, one block and two blocks") func hash256() {
        #expect(sha256([]) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        #expect(sha256(Array("abc".utf8)) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        #expect(
            sha256(Array("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq".utf8))
                == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1")
    }

    @Test("FIPS 180-4: SHA-512, in two parts") func hash512() {
        let expected =
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
            + "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
        let message = Array("abc".utf8)
        for split in 0...3 {
            #expect(text(Primitives.sha512(Array(message[..<split]), Array(message[split...]))) == expected)
        }
        #expect(text(Primitives.sha512FirstHalf(SecretBytes(message)).array) == String(expected.prefix(64)))
    }

    @Test("RFC 4231, test cases 1 to 4") func hmac() {
        #expect(
            code([UInt8](repeating: 0x0B, count: 20), Array("Hi There".utf8))
                == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7")
        #expect(
            code(Array("Jefe".utf8), Array("what do ya want for nothing?".utf8))
                == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
        #expect(
            code([UInt8](repeating: 0xAA, count: 20), [UInt8](repeating: 0xDD, count: 50))
                == "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe")
        #expect(
            code(Array(1...25), [UInt8](repeating: 0xCD, count: 50))
                == "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b")
    }

    @Test("Parts are hashed one after the other, at every split, with keys up to a block") func parts() {
        let message = Array(0..<150 as Range<UInt8>)
        for count in [0, 1, 32, 63, 64] {
            let key = SecretBytes([UInt8](repeating: 5, count: count))
            let whole = message.withUnsafeBytes { Primitives.hmac(key: key, $0) }
            for split in stride(from: 0, through: 150, by: 25) {
                message.withUnsafeBytes { bytes in
                    let first = UnsafeRawBufferPointer(rebasing: bytes[..<split])
                    let second = UnsafeRawBufferPointer(rebasing: bytes[split..<(split + 150) / 2])
                    let third = UnsafeRawBufferPointer(rebasing: bytes[((split + 150) / 2)...])
                    #expect(Primitives.hmac(key: key, first, second, third).isEqual(to: whole))
                }
            }
        }
    }

    @Test("HKDF of any length begins as the longest does") func lengths() {
        func derive(_ count: Int) -> [UInt8] {
            var output = [UInt8](repeating: 0, count: count)
            [UInt8]([1, 2, 3]).withUnsafeBytes { bytes in
                output.withUnsafeMutableBytes { Primitives.hkdf(salt: bytes, secret: bytes, info: bytes, into: $0) }
            }
            return output
        }
        let longest = derive(255 * 32)
        for count in [0, 1, 31, 32, 33, 44, 64, 80, 96, 255 * 32 - 1] {
            #expect(derive(count) == Array(longest.prefix(count)), "\(count) bytes")
        }
        #expect(Set(stride(from: 0, to: longest.count, by: 32).map { Array(longest[$0..<$0 + 32]) }).count == 255)
    }

    @Test("A chain key is a value: stepping one leaves its copies alone") func chains() {
        let first = ChainKey(secret: SecretBytes([UInt8](repeating: 1, count: 32)))
        let before = first.secret.array
        var moved = first
        moved.advance()
        #expect(first.secret.array == before)
        #expect(moved.secret.isEqual(to: first.next.secret))
        moved.advance()
        moved.advance()
        #expect(moved.secret.isEqual(to: first.advanced(by: 3).secret))
        // The key of a message is that of its place, whatever becomes of the chain.
        var chain = first.advanced(by: 3)
        let key = chain.messageKey
        chain.advance()
        #expect(key.secret.isEqual(to: moved.messageKey.secret))
        #expect(!key.secret.isEqual(to: chain.messageKey.secret))
    }

    @Test("A secret that nobody else holds is replaced in its place") func replacement() {
        var secret = SecretBytes([1, 2, 3])
        let identity = ObjectIdentifier(secret)
        [UInt8]([4, 5, 6]).withUnsafeBytes { SecretBytes.replace(&secret, by: $0) }
        #expect(ObjectIdentifier(secret) == identity)
        let other = secret
        [UInt8]([7, 8, 9]).withUnsafeBytes { SecretBytes.replace(&secret, by: $0) }
        #expect(secret.array == [7, 8, 9] && other.array == [4, 5, 6])
        [UInt8]([1]).withUnsafeBytes { SecretBytes.replace(&secret, by: $0) }
        #expect(secret.array == [1])
    }
}

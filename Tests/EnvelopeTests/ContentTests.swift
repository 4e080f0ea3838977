import Envelope
import Testing

@Suite struct ContentTests {
    @Test func everyLengthComesBack() throws {
        for length in [0, 1, 250, 251, 252, 4090, 8186, 8187, 8188, 65_535, 65_536] {
            let plaintext = [UInt8](repeating: 0xFF, count: length)
            let padded = try Content.padded(plaintext)
            #expect(padded.count == Content.paddedLength(of: length))
            #expect(try Content.plaintext(of: padded) == plaintext)
        }
        #expect(throws: EnvelopeError.malformed) { try Content.padded([UInt8](repeating: 1, count: 65_537)) }
    }

    @Test func lengthsFallIntoFewBuckets() {
        var buckets: Set<Int> = []
        var last = 0
        var areGood = true
        for length in 0...Content.maximumLength {
            let padded = Content.paddedLength(of: length)
            areGood = areGood && padded >= max(length + 5, last) && padded % 256 == 0
            // At most 256 bytes or an eighth more.
            areGood = areGood && padded - length - 5 < max(256, (length + 5) / 8)
            buckets.insert(padded)
            last = padded
        }
        #expect(areGood)
        #expect(buckets.count == 81)
        #expect(Content.paddedLength(of: 0) == 256 && Content.paddedLength(of: 251) == 256)
        #expect(Content.paddedLength(of: 252) == 512)
        #expect(Content.paddedLength(of: 65_536) == 67_584)
    }

    @Test func whatIsNoContentIsRefused() throws {
        let good = try Content.padded([1, 2, 3])
        for length in 0..<8 {
            #expect(throws: EnvelopeError.malformed) { try Content.plaintext(of: Array(good.prefix(length))) }
        }
        for index in good.indices.dropFirst(8) {
            var other = good
            other[index] = 1
            #expect(throws: EnvelopeError.malformed) { try Content.plaintext(of: other) }
        }
        // A body of a carrier with lines, and the other way round.
        let body = Body(text: [1]).bytes(paddedTo: 256)
        #expect(throws: EnvelopeError.unsupportedKind(0)) { try Content.plaintext(of: body) }
        #expect(throws: EnvelopeError.unsupportedKind(3)) { try Body(good) }
    }

    @Test func carriersLimitTheLengthOfEnvelopes() throws {
        let long = Envelope(
            sender: DeviceID(1), messageID: MessageID(2), ratchetMessage: [UInt8](repeating: 0, count: 9000)
        ).bytes
        #expect(throws: EnvelopeError.malformed) { try Envelope(long) }
        #expect(try Envelope(long, in: .json).bytes == long)
        let longer = long + [UInt8](repeating: 0, count: Carrier.json.maximumLength)
        #expect(throws: EnvelopeError.malformed) { try Envelope(longer, in: .json) }
    }
}

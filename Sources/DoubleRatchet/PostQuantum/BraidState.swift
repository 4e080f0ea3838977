/// The braid at rest: only values that cannot be computed from others.
///
/// ```
/// 0          1           5                   69
/// | state u8 | epoch u32 | authenticator 64  | as the state says
///
///  0 keysUnsampled
///  1 keysSampled                   seed 64 | sent u16
///  2 headerSent                    seed 64 | sent u16 | chunks of 30
///  3 ciphertext1Received           seed 64 | sent u16 | ciphertext1 960
///  4 keySentCiphertext1Received    seed 64 | ciphertext1 960 | chunks of 5
///  5 noHeaderReceived              chunks of 3
///  6 headerReceived                header 64
///  7 ciphertext1Sampled            m 32 | header 64 | sent u16 | chunks of 36
///  8 keyReceivedCiphertext1Sampled m 32 | header 64 | sent u16 | key vector 1152
///  9 ciphertext1Acknowledged       m 32 | header 64 | chunks of 36
/// 10 ciphertext2Sampled            ciphertext2 and MAC 160 | sent u16
/// ```
/// At most 1358 bytes. `sent` is the index of the next chunk; `chunks` are drawn in ``ChunkCollector``.
extension Braid {
    package func serialize(into output: inout [UInt8]) {
        output.append(stateNumber)
        output.append(networkOrder: epoch)
        authenticator.serialize(into: &output)
        switch state {
        case .keysUnsampled: break
        case .keysSampled(let keys, let sent):
            keys.seed.append(to: &output)
            output.append(networkOrder: sent)
        case .headerSent(let keys, let sent, let collector):
            keys.seed.append(to: &output)
            output.append(networkOrder: sent)
            collector.serialize(into: &output)
        case .ciphertext1Received(let keys, let sent, let first):
            keys.seed.append(to: &output)
            output.append(networkOrder: sent)
            output.append(contentsOf: first)
        case .keySentCiphertext1Received(let keys, let first, let collector):
            keys.seed.append(to: &output)
            output.append(contentsOf: first)
            collector.serialize(into: &output)
        case .noHeaderReceived(let collector): collector.serialize(into: &output)
        case .headerReceived(let header): output.append(contentsOf: header)
        case .ciphertext1Sampled(let encapsulation, let sent, let collector):
            encapsulation.serialize(into: &output)
            output.append(networkOrder: sent)
            collector.serialize(into: &output)
        case .keyReceivedCiphertext1Sampled(let encapsulation, let sent, let vector):
            encapsulation.serialize(into: &output)
            output.append(networkOrder: sent)
            output.append(contentsOf: vector)
        case .ciphertext1Acknowledged(let encapsulation, let collector):
            encapsulation.serialize(into: &output)
            collector.serialize(into: &output)
        case .ciphertext2Sampled(let data, let sent):
            output.append(contentsOf: data)
            output.append(networkOrder: sent)
        }
    }

    private var stateNumber: UInt8 {
        switch state {
        case .keysUnsampled: 0
        case .keysSampled: 1
        case .headerSent: 2
        case .ciphertext1Received: 3
        case .keySentCiphertext1Received: 4
        case .noHeaderReceived: 5
        case .headerReceived: 6
        case .ciphertext1Sampled: 7
        case .keyReceivedCiphertext1Sampled: 8
        case .ciphertext1Acknowledged: 9
        case .ciphertext2Sampled: 10
        }
    }

    init(from reader: inout ByteReader) throws(RatchetError) {
        let number = try reader.byte()
        let epoch = try reader.uint32()
        guard epoch > 0, epoch < Self.maximumEpoch else { throw .malformed }
        let authenticator = try BraidAuthenticator(from: &reader)
        self.init(epoch: epoch, authenticator: authenticator, state: try Self.state(number, &reader))
    }

    private static func state(_ number: UInt8, _ reader: inout ByteReader) throws(RatchetError) -> State {
        switch number {
        case 0: return .keysUnsampled
        case 1: return .keysSampled(try keys(&reader), sent: try sent(&reader))
        case 2:
            return .headerSent(
                try keys(&reader), sent: try sent(&reader),
                try ChunkCollector(size: IncrementalKEM.firstSize, from: &reader))
        case 3:
            return .ciphertext1Received(
                try keys(&reader), sent: try sent(&reader), first: Array(try reader.take(IncrementalKEM.firstSize)))
        case 4:
            return .keySentCiphertext1Received(
                try keys(&reader), first: Array(try reader.take(IncrementalKEM.firstSize)),
                try ChunkCollector(size: ciphertext2Size, from: &reader))
        case 5: return .noHeaderReceived(try ChunkCollector(size: headerSize, from: &reader))
        case 6: return .headerReceived(Array(try reader.take(IncrementalKEM.headerSize)))
        case 7:
            return .ciphertext1Sampled(
                try BraidEncapsulation(from: &reader), sent: try sent(&reader),
                try ChunkCollector(size: IncrementalKEM.vectorSize, from: &reader))
        case 8:
            return .keyReceivedCiphertext1Sampled(
                try BraidEncapsulation(from: &reader), sent: try sent(&reader),
                vector: Array(try reader.take(IncrementalKEM.vectorSize)))
        case 9:
            return .ciphertext1Acknowledged(
                try BraidEncapsulation(from: &reader),
                try ChunkCollector(size: IncrementalKEM.vectorSize, from: &reader))
        case 10: return .ciphertext2Sampled(Array(try reader.take(ciphertext2Size)), sent: try sent(&reader))
        default: throw .malformed
        }
    }

    private static func keys(_ reader: inout ByteReader) throws(RatchetError) -> BraidKeyPair {
        BraidKeyPair(seed: try reader.secret(IncrementalKEM.seedSize))
    }

    private static func sent(_ reader: inout ByteReader) throws(RatchetError) -> UInt16 {
        let sent = try reader.uint16()
        guard sent < ErasureCode.maximumIndex else { throw .malformed }
        return sent
    }
}

extension BraidEncapsulation {
    init(from reader: inout ByteReader) throws(RatchetError) {
        let message = try reader.secret(32)
        self.init(message: message, header: Array(try reader.take(IncrementalKEM.headerSize)))
    }

    package func serialize(into output: inout [UInt8]) {
        message.append(to: &output)
        output.append(contentsOf: header)
    }
}

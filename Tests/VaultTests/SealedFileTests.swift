import Envelope
import StorePort
import TestKit
import Testing
import Vault

/// The form of sealed files, chunk by chunk.
@Suite struct SealedFileTests {
    private static let chunk = SealedFile.chunkSize
    private static let sealedChunk = SealedFile.chunkSize + 16
    /// Sizes around the ends of chunks.
    private static let sizes = [0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 5, 3 * chunk + 1000]
    private static let description = SealedFile.Description(type: "image/png", name: "Gruß.png")

    private static func key(_ number: UInt64 = 7, _ byte: UInt8 = 9) -> SealedFile.Key {
        let header = SealedFile.Header(key: MessageID(number), prefix: [1, 2, 3, 4, 5, 6, 7])
        let key = ContentKey(
            message: MessageID(number), digest: header.digest, expiresAt: .max,
            bytes: [UInt8](repeating: byte, count: SealedFile.keySize))
        return SealedFile.Key(header, key)
    }

    private static func file(_ size: Int) -> [UInt8] {
        var random = SeededGenerator(seed: UInt64(size))
        return random.bytes(size)
    }

    private static func sealed(_ file: [UInt8], _ key: SealedFile.Key, pieces: Int = .max) throws -> [UInt8] {
        var sealer = SealedFile.Sealer(key, description)
        var output: [UInt8] = []
        try sealer.begin(into: &output)
        for piece in file.pieces(of: pieces) { try piece.withUnsafeBytes { try sealer.seal($0, into: &output) } }
        try sealer.end(into: &output)
        return output
    }

    private static func opened(
        _ sealed: [UInt8], _ key: SealedFile.Key, range: Range<Int>? = nil, pieces: Int = .max
    ) throws -> [UInt8] {
        var opener = SealedFile.Opener(key, range: range)
        var output: [UInt8] = []
        for piece in sealed.pieces(of: pieces) {
            try piece.withUnsafeBytes { try opener.open($0, into: &output) }
            if range != nil, opener.isComplete { return output }
        }
        try opener.end(into: &output)
        return output
    }

    @Test(arguments: sizes) func whatIsSealedIsOpened(size: Int) throws {
        let (file, key) = (Self.file(size), Self.key())
        let sealed = try Self.sealed(file, key)
        #expect(sealed.count == SealedFile.sealedSize(of: size))
        #expect(SealedFile.size(ofSealed: sealed.count) == size)
        #expect(sealed.withUnsafeBytes { SealedFile.isSealed($0) } && sealed.starts(with: SealedFile.words))
        #expect(try SealedFile.Header(sealed) == key.header)
        #expect(try SealedFile.Opener(key).description(in: sealed) == Self.description)
        for pieces in [1000, Self.chunk, Self.sealedChunk, 100_003] {
            #expect(try Self.sealed(file, key, pieces: pieces) == sealed)
            #expect(try Self.opened(sealed, key, pieces: pieces) == file)
        }
        // The bytes of the file are nowhere in it.
        if size > 32 { #expect(sealed.firstRange(of: file.prefix(32)) == nil) }
    }

    @Test func sizesOfNoFileAreKnown() throws {
        let least = try #require(SealedFile.sealedSize(of: 0))
        for size in [-1, 0, least - 1, least + Self.chunk + 1, least + Self.chunk + 15, least + Self.sealedChunk] {
            #expect(SealedFile.size(ofSealed: size) == nil, "\(size)")
        }
        #expect(SealedFile.sealedSize(of: -1) == nil && SealedFile.sealedSize(of: SealedFile.sizeLimit + 1) == nil)
        #expect(SealedFile.size(ofSealed: .max) == nil && SealedFile.sealedSize(of: .max) == nil)
        var last = -1
        for sealed in least..<(least + 2 * Self.sealedChunk) {
            guard let size = SealedFile.size(ofSealed: sealed) else { continue }
            guard size == last + 1 else {
                Issue.record("\(sealed)")
                return
            }
            last = size
        }
    }

    @Test(arguments: sizes) func everyRangeIsThatOfTheFile(size: Int) throws {
        let (file, key) = (Self.file(size), Self.key())
        let sealed = try Self.sealed(file, key)
        var random = SeededGenerator(seed: 11)
        var ends = [0, 1, Self.chunk - 1, Self.chunk, Self.chunk + 1, 2 * Self.chunk, size - 1, size]
            .filter { 0...size ~= $0 }
        for _ in 0..<8 { ends.append(random.below(size + 1)) }
        for first in ends {
            for last in ends where first < last {
                let part = try Self.opened(sealed, key, range: first..<last, pieces: 30_011)
                guard part == Array(file[first..<last]) else {
                    Issue.record("\(first)..<\(last) of \(size)")
                    return
                }
            }
        }
    }

    /// Each byte of the beginning counts, and one of each chunk.
    @Test func alteredFilesAreNotOpened() throws {
        let (file, key) = (Self.file(2 * Self.chunk + 100), Self.key())
        let sealed = try Self.sealed(file, key)
        for place in 0..<SealedFile.beginningSize {
            var altered = sealed
            altered[place] ^= 1
            let isKnown = (try? SealedFile.Header(altered)) == key.header
            let isOpen = (try? SealedFile.Opener(key).description(in: altered)) != nil
            guard !(isKnown && isOpen) else {
                Issue.record("\(place)")
                return
            }
        }
        for chunk in 0..<3 {
            let place = SealedFile.beginningSize + chunk * Self.sealedChunk
            for offset in [0, 50, 115] {
                var altered = sealed
                altered[place + offset] ^= 0x80
                #expect(throws: (any Error).self) { try Self.opened(altered, key) }
                let range = chunk * Self.chunk..<chunk * Self.chunk + 10
                #expect(throws: (any Error).self) { try Self.opened(altered, key, range: range) }
            }
        }
        #expect(throws: (any Error).self) { try Self.opened(sealed, Self.key(7, 10)) }
        #expect(throws: (any Error).self) { try Self.opened(sealed, Self.key(8, 9)) }
    }

    @Test(arguments: [Self.chunk, 2 * Self.chunk, 2 * Self.chunk + 100])
    func shortenedExtendedAndReorderedFilesAreNotOpened(size: Int) throws {
        let (file, key) = (Self.file(size), Self.key())
        let sealed = try Self.sealed(file, key)
        let begin = SealedFile.beginningSize
        for count in [0, 10, begin - 1, begin, begin + 15, begin + 16, begin + Self.sealedChunk, sealed.count - 1]
        where count < sealed.count {
            #expect(throws: (any Error).self, "\(count)") { try Self.opened(Array(sealed.prefix(count)), key) }
        }
        for more in [1, 16, 17, Self.sealedChunk] {
            let longer = sealed + [UInt8](repeating: 0, count: more)
            #expect(throws: (any Error).self, "\(more)") { try Self.opened(longer, key) }
        }
        // Another last chunk behind it, and the file twice.
        #expect(throws: (any Error).self) { try Self.opened(sealed + Array(sealed.dropFirst(begin)), key) }
        guard size > Self.chunk else { return }
        let chunks = sealed.dropFirst(begin)
        let (first, rest) = (chunks.prefix(Self.sealedChunk), chunks.dropFirst(Self.sealedChunk))
        for order in [Array(rest + first), Array(first + first + rest), Array(rest), Array(first + rest.dropFirst(16))]
        {
            #expect(throws: (any Error).self) { try Self.opened(Array(sealed.prefix(begin)) + order, key) }
        }
        // A chunk of another file under the same key, which has another header.
        let other = SealedFile.Header(key: MessageID(7), prefix: [7, 6, 5, 4, 3, 2, 1])
        let bytes = [UInt8](repeating: 9, count: SealedFile.keySize)
        let second = SealedFile.Key(
            other, ContentKey(message: MessageID(7), digest: other.digest, expiresAt: .max, bytes: bytes))
        let foreign = try Self.sealed(file, second)
        #expect(throws: (any Error).self) {
            try Self.opened(Array(sealed.prefix(begin)) + Array(foreign.dropFirst(begin)), key)
        }
    }

    @Test func descriptionsAreBoundedAndHideTheirLength() throws {
        let key = Self.key()
        func whole(_ type: String?, _ name: String?) throws -> SealedFile.Description {
            var sealer = SealedFile.Sealer(key, SealedFile.Description(type: type, name: name))
            var output: [UInt8] = []
            try sealer.begin(into: &output)
            #expect(output.count == SealedFile.beginningSize)
            return try SealedFile.Opener(key).description(in: output)
        }
        let long = String(repeating: "é", count: 127)
        #expect(try whole("text/plain; charset=utf-8", long).name == long)
        #expect(try whole("text/plain; charset=utf-8", nil) == .init(type: "text/plain; charset=utf-8"))
        #expect(try whole(nil, nil) == SealedFile.Description())
        #expect(try whole("", "") == SealedFile.Description())
        #expect(try whole("a\r\nB: c", "a\nb") == SealedFile.Description())
        let tooLong = try whole(String(repeating: "x", count: 128), String(repeating: "x", count: 256))
        #expect(tooLong == SealedFile.Description())
        #expect(try whole(String(repeating: "x", count: 127), String(repeating: "y", count: 255)).type?.count == 127)
    }

    @Test func headersOfOtherVersionsAreRefused() throws {
        let bytes = Self.key().header.bytes
        var newer = bytes
        newer[SealedFile.words.count] = 2
        #expect(throws: EnvelopeError.unsupportedVersion(2)) { try SealedFile.Header(newer) }
        for count in 0..<bytes.count {
            #expect(throws: EnvelopeError.malformed) { try SealedFile.Header(Array(bytes.prefix(count))) }
        }
        #expect(!bytes.prefix(SealedFile.words.count - 1).withUnsafeBytes { SealedFile.isSealed($0) })
    }

    /// Whatever is done to sealed bytes, nothing but the file comes out, and nothing traps.
    @Test(arguments: 0..<40) func damagedFilesGiveOutNothingElse(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        let size = random.below(3 * Self.chunk)
        let (file, key) = (Self.file(size), Self.key())
        var sealed = try Self.sealed(file, key)
        switch random.below(5) {
        case 0: sealed[random.below(sealed.count)] ^= UInt8(1 + random.below(255))
        case 1: sealed.removeLast(1 + random.below(sealed.count))
        case 2: sealed.insert(contentsOf: random.bytes(1 + random.below(40)), at: random.below(sealed.count))
        case 3:
            let first = random.below(sealed.count)
            sealed.removeSubrange(first..<min(sealed.count, first + 1 + random.below(Self.sealedChunk)))
        default: sealed = random.bytes(random.below(2 * Self.chunk))
        }
        _ = try? SealedFile.Header(sealed)
        _ = SealedFile.size(ofSealed: sealed.count)
        var opener = SealedFile.Opener(key)
        var output: [UInt8] = []
        var isWhole = false
        do {
            _ = try opener.description(in: sealed)
            for piece in sealed.pieces(of: 1 + random.below(100_000)) {
                try piece.withUnsafeBytes { try opener.open($0, into: &output) }
            }
            try opener.end(into: &output)
            isWhole = true
        } catch {}
        // What came before the damage is the file's, and the end is not reached unless the damage is in the readable words,
        // which the digest of the header guards.
        #expect(file.starts(with: output), "seed \(seed)")
        #expect(!isWhole || (try? SealedFile.Header(sealed)) != key.header, "seed \(seed)")
    }
}

extension [UInt8] {
    fileprivate func pieces(of size: Int) -> [ArraySlice<UInt8>] {
        stride(from: 0, to: count, by: Swift.max(1, Swift.min(size, Swift.max(count, 1)))).map {
            self[$0..<Swift.min(count, $0 + Swift.min(size, count))]
        }
    }
}

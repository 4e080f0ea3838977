import TestKit
import Testing

/// The programmes of the forms that `Tests/fuzz` grows, without a fuzzer. Its finds come here.
@Suite struct FormProgrammeTests {
    struct Reader: CustomStringConvertible, Sendable {
        var programme: FormProgramme
        var number: UInt8
        var description: String { "\(programme.rawValue) \(number)" }
    }

    private static let readers = FormProgramme.allCases.flatMap { programme in
        programme.readers.indices.map { Reader(programme: programme, number: UInt8($0)) }
    }

    private static func run(_ reader: Reader, _ input: [UInt8]) -> Bool {
        do {
            try reader.programme.run([reader.number] + input)
            return true
        } catch {
            Issue.record("\(reader): \(error) \(input)")
            return false
        }
    }

    @Test(arguments: readers) func bytesDrawnFromASeed(_ reader: Reader) {
        var random = SeededGenerator(seed: 1000 + UInt64(reader.number))
        for round in 0..<200 {
            // Mostly few choices and changes, so that some get far.
            guard Self.run(reader, random.bytes(random.below(round % 8 == 0 ? 200 : 40))) else { return }
        }
    }

    @Test(arguments: readers) func whatEncodersWriteIsRead(_ reader: Reader) {
        for choice in 0..<16 as Range<UInt8> {
            guard Self.run(reader, []), Self.run(reader, [choice]), Self.run(reader, [choice, choice, 0]),
                Self.run(reader, [UInt8](repeating: choice, count: 40))
            else { return }
        }
    }
}

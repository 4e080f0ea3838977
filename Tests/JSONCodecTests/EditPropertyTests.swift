import NIOCore
import TestKit
import Testing

@testable import JSONCodec

/// Editing the bytes and editing the value come to the same, and bytes that no edit is about are what they were.
@Suite struct EditPropertyTests {
    /// A document by chance, as it came and as it is after edits by chance.
    private struct Edited {
        let source: JSONDocument
        let model: Model
        let replaced: [JSONPlace]
        let output: ByteBuffer
    }

    private static func edited(_ seed: UInt64, removing: Bool, _ check: (Edited) throws -> Void) throws {
        var random = RandomDocument(chance: SeededGenerator(seed: seed))
        var made = 0
        for _ in 0..<150 {
            let source = try document(random.text())
            var model = Model(source, source.root)
            var edits = JSONEdits(source)
            let (count, replaced) = model.edit(&edits, &random.chance, removing: removing)
            made += count
            try check(Edited(source: source, model: model, replaced: replaced, output: try edits.apply()))
        }
        #expect(made > 150)
    }

    @Test(arguments: 1...20 as ClosedRange<UInt64>) func editedDocumentsAreEditedValues(_ seed: UInt64) throws {
        try Self.edited(seed, removing: true) { edited in
            let (source, output) = (edited.source.bytes.text, edited.output.text)
            let changed = try JSONDocument(edited.output)
            #expect(changed.dump == edited.model.dump, "\(source) became \(output)")
            // what stays is there as it was written, in its order
            var rest = output[...]
            for written in edited.model.kept {
                guard let range = rest.firstRange(of: written) else {
                    Issue.record("\(written) of \(source) is not in \(output)")
                    break
                }
                rest = rest[range.upperBound...]
            }
        }
    }

    /// What was put in taken out again, by its text, gives back the bytes that came.
    @Test(arguments: 21...40 as ClosedRange<UInt64>) func untouchedBytesAreWhatTheyWere(_ seed: UInt64) throws {
        try Self.edited(seed, removing: false) { edited in
            var text = edited.output.text
            for name in ["n0", "n1", "n2", "n3", "n4", "n5"] { text = text.replacing(",\"\(name)\":true", with: "") }
            text = text.replacing(",\"end\":null", with: "").replacing("\"end\":null", with: "")
            for place in edited.replaced {
                text = text.replacing(#""new \"\n""#, with: edited.source.written(place), maxReplacements: 1)
            }
            #expect(text == edited.source.bytes.text)
        }
    }

    /// Edits that stand in each other are refused or come to something valid; nothing else.
    @Test(arguments: 1...10 as ClosedRange<UInt64>) func anyEditsAreRefusedOrValid(_ seed: UInt64) throws {
        var random = RandomDocument(chance: SeededGenerator(seed: seed))
        var (made, refused) = (0, 0)
        for _ in 0..<200 {
            let source = try document(random.text())
            let all = Model(source, source.root).places
            var edits = JSONEdits(source)
            for number in 0..<Int.random(in: 1..<5, using: &random.chance) {
                let place = all.randomElement(using: &random.chance) ?? source.root
                switch Int.random(in: 0..<5, using: &random.chance) {
                case 0: edits.replace(place, with: .integer(number))
                case 1: edits.remove(place)
                case 2: edits.insert("n\(number)", .null, beside: place)
                case 3: edits.insert("n\(number % 2)", .null, into: place)
                default: edits.set("m\(number)", to: .null, beside: place)
                }
            }
            do throws(JSONEditError) {
                let output = try edits.apply()
                #expect(throws: Never.self) { try JSONDocument(output) }
                made += 1
            } catch {
                refused += 1
            }
        }
        #expect(made > 20 && refused > 20)
    }
}

/// A value as a tree, which remembers where it came from and is edited the simple way.
private indirect enum Model {
    case scalar(dump: String, written: String, JSONPlace?)
    case array([Model], JSONPlace)
    case object([(name: String, value: Model)], JSONPlace)

    init(_ document: JSONDocument, _ place: JSONPlace) {
        switch document.kind(place) {
        case .array: self = .array(document.children(place).map { Model(document, $0) }, place)
        case .object:
            self = .object(
                document.children(place).map { child in
                    let name = document.withTable { $0.dump(JSONPlace(Int(child.index) - 1, in: place)) }
                    return (name, Model(document, child))
                }, place)
        default:
            self = .scalar(
                dump: document.withTable { $0.dump(place) }, written: document.written(place), place)
        }
    }

    private static func put(_ dump: String) -> Model { .scalar(dump: dump, written: "", nil) }

    var place: JSONPlace? {
        switch self {
        case .scalar(_, _, let place): place
        case .array(_, let place), .object(_, let place): place
        }
    }

    var places: [JSONPlace] {
        switch self {
        case .scalar(_, _, let place): place.map { [$0] } ?? []
        case .array(let elements, let place): [place] + elements.flatMap(\.places)
        case .object(let members, let place): [place] + members.flatMap(\.value.places)
        }
    }

    var dump: String {
        switch self {
        case .scalar(let dump, _, _): dump
        case .array(let elements, _): "[" + elements.map(\.dump).joined(separator: ",") + "]"
        case .object(let members, _):
            "{" + members.map { $0.name + ":" + $0.value.dump }.joined(separator: ",") + "}"
        }
    }

    /// Scalars that were not edited, as they were written.
    var kept: [String] {
        switch self {
        case .scalar(_, let written, _): [written]
        case .array(let elements, _): elements.flatMap(\.kept)
        case .object(let members, _): members.flatMap(\.value.kept)
        }
    }

    /// Edits both sides by chance, never twice in the same place.
    ///
    /// - Returns: how many edits there are, and what was replaced, in its order.
    mutating func edit(
        _ edits: inout JSONEdits, _ chance: inout SeededGenerator, removing: Bool
    ) -> (count: Int, replaced: [JSONPlace]) {
        var count = 0
        var replaced: [JSONPlace] = []
        /// What becomes of one child: nothing where it goes.
        func child(_ value: Model) -> Model? {
            guard let place = value.place else { return value }
            switch Int.random(in: 0..<6, using: &chance) {
            case 0:
                edits.replace(place, with: .string("new \"\n"))
                count += 1
                replaced.append(place)
                return Self.put("s6e657720220a")
            case 1 where removing:
                edits.remove(place)
                count += 1
                return nil
            default:
                var value = value
                let inside = value.edit(&edits, &chance, removing: removing)
                count += inside.count
                replaced += inside.replaced
                return value
            }
        }
        switch self {
        case .scalar: break
        case .array(let elements, let place): self = .array(elements.compactMap(child), place)
        case .object(let members, let object):
            var output: [(name: String, value: Model)] = []
            for (number, (name, value)) in members.enumerated() {
                guard let changed = child(value) else { continue }
                output.append((name, changed))
                if let place = value.place, Int.random(in: 0..<4, using: &chance) == 0 {
                    edits.insert("n\(number)", .boolean(true), beside: place)
                    output.append(("s6e" + String(0x30 + number, radix: 16), Self.put("t")))
                    count += 1
                }
            }
            if Int.random(in: 0..<4, using: &chance) == 0 {
                edits.insert("end", .null, into: object)
                output.append(("s656e64", Self.put("z")))
                count += 1
            }
            self = .object(output, object)
        }
        return (count, replaced)
    }
}

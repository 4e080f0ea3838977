import TestKit
import TestThreads
import Testing

/// Compares the catalogue of the library with its code.
@Suite(.blocking) struct DocumentationTests {
    @Test func everyBlockOfCodeIsCompiledAndRun() throws {
        let examples = try Catalogue(of: "Devices", file: #filePath).missing(
            in: "Tests/DevicesTests/ExampleTests.swift")
        #expect(examples.blocks.isEmpty && examples.count >= 6, "\(examples)")
    }

    @Test(.enabled(if: Catalogue.isConvertible, "docc not found"))
    func docCConvertsAllWithoutAWarning() throws {
        let complaints = try Catalogue(of: "Devices", file: #filePath).convert()
        #expect(complaints.isEmpty, "\(complaints.prefix(4000))")
    }
}

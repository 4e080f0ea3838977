import StoreConformance
import StorePort
import Testing

@Suite struct ConformanceTests {
    @Test(arguments: StoreConformance.checks)
    func memory(_ check: StoreConformance.Check) throws { try check.run { InMemoryStore() } }

    @Test(arguments: StoreConformance.checks)
    func sqlite(_ check: StoreConformance.Check) throws {
        let scratch = Scratch()
        try check.run { try scratch.open() }
    }
}
